"""The dashboards: which panels, with which queries; ``generate.py`` beside this folder makes files of them."""
