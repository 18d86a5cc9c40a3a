"""The measuring side of specmath: forward-pass times and acceptance on the user's own machine.

It imports `specmath`, never the reverse, so that the calculator runs without torch.
"""
