"""The completion script of each shell: it sends the line up to the cursor and shows the completions.

Each output line is one completion; without any, the shell completes file names.
"""

_BASH = r"""# shale: source this in ~/.bashrc, or put it where bash-completion looks.
_shale_completion() {
    local offer line="${COMP_LINE:0:COMP_POINT}"
    COMPREPLY=()
    while IFS= read -r offer; do
        COMPREPLY+=("$offer")
    done < <(_SHALE_COMPLETE=bash _SHALE_LINE="$line" COMP_WORDBREAKS="$COMP_WORDBREAKS" "$1" 2>/dev/null)
}
complete -o default -F _shale_completion shale
"""

_ZSH = r"""#compdef shale
_shale() {
    local found
    local -a offers
    found="$(_SHALE_COMPLETE=zsh _SHALE_LINE="${(j: :)words[1,CURRENT-1]} $PREFIX" "${words[1]}" 2>/dev/null)"
    if [[ -n "$found" ]]; then
        offers=("${(@f)found}")
        _describe 'shale' offers
    else
        compset -P '--*='
        _files
    fi
}
if [[ "${funcstack[1]}" == _shale ]]; then
    _shale "$@"
else
    compdef _shale shale
fi
"""

_FISH = r"""function __shale_has_offers
    set -g __shale_offers (env _SHALE_COMPLETE=fish _SHALE_LINE=(commandline -cp | string collect) shale 2>/dev/null)
    test (count $__shale_offers) -gt 0
end
complete --command shale --no-files --condition __shale_has_offers --arguments '$__shale_offers'
"""

_POWERSHELL = r"""Register-ArgumentCompleter -Native -CommandName shale -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $line = $commandAst.ToString()
    if (-not $wordToComplete) { $line += ' ' }
    $env:_SHALE_COMPLETE = 'powershell'
    $env:_SHALE_LINE = $line
    try {
        shale 2>$null | ForEach-Object {
            $word, $about = $_ -split "`t", 2
            if (-not $about) { $about = $word }
            [System.Management.Automation.CompletionResult]::new($word, $word, 'ParameterValue', $about)
        }
    } finally {
        Remove-Item Env:_SHALE_COMPLETE, Env:_SHALE_LINE
    }
}
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH, "powershell": _POWERSHELL}
