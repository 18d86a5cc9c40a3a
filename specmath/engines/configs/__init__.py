"""What serving engines are to be told: one file per engine, from one k or tiers of k to what is pasted."""
