"""What will break or bite when speculation is switched on: one file per subject, a function per finding."""
