"""specmath: does speculative decoding pay?

Public names are loaded on first use, so that `import specmath` costs nothing.
"""

__version__ = "0.1.0"
