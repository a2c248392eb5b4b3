"""The commands of the command line, one package or module per noun."""
