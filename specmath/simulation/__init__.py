"""Continuous batching, request by request: what a serving engine does at a rate, by discrete events.

policies     which k at which running batch, with hysteresis
requests     arrivals and lengths, drawn or from a trace        draws      tokens that steps yield
sequences    what runs in a replica                             replicas   the events of one replica
runs         `simulate`                                         outcomes   what a run did, and its summary
statistics   quantiles, batch means, overload                   series     `simulate_many`, with a log
"""
