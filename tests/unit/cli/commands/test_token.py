"""``shale config new-token`` and ``hash-token``."""

from pathlib import Path

import orjson
import pytest

from shale.core.token_hash import token_hash
from shale_cli.__main__ import main


def test_a_new_token_comes_with_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "new-token", "-o", "json"]) == 0
    first = orjson.loads(capsys.readouterr().out)
    assert len(bytes.fromhex(first["token"])) >= 16
    assert first["hash"] == token_hash(first["token"])
    assert main(["config", "new-token", "-o", "json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["token"] != first["token"]


def test_the_hash_of_a_token_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "token"
    file.write_text("hush\n")
    assert main(["config", "hash-token", str(file), "-o", "json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["hash"] == token_hash("hush")
    file.write_text("two words")
    assert main(["config", "hash-token", str(file)]) != 0
    assert "two words" not in capsys.readouterr().err
