"""Ways of drafting: what each costs in a step, what it verifies, what memory it takes.

One file per drafter, each a small record that satisfies `specmath.drafters.base.Drafter`. To add one, write
its file and add its line to `specmath.drafters.methods`.
"""
