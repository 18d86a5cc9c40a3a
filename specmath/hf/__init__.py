"""Hugging Face `config.json` to `ModelShape`, with the standard library alone.

document    text to a checked dict; where the text model sits in a wrapper
fields      one value by its name in the code, whatever the family calls it
families_*  the tables: per model_type, the name or the fixed value of every field
weights     the list of weights of a layer, by module path
attention, recurrent, feed_forward, patterns    what a layer consists of
quantization  module path to storage format
drafters, mtp   heads that live on a target's features
reader      all of it put together
"""
