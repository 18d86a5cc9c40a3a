"""A live server measured from outside: requests, levels of load, counters. No torch."""
