"""Hugging Face `config.json` to `ModelShape`, with the standard library alone.

reader          all of it put together
document        text to a checked dict; where the text model sits in a wrapper
fields          one value by its name in the code, whatever the family calls it
families        the tables `families_*`: per model_type, the name or the fixed value of every field
class_defaults  dimensions of model classes, for nested tables that hold only a difference
patterns        which layer is what
layers          kinds of layers to weights, caches and states, from
                attention, compressed, recurrent, shared_blocks, feed_forward
weights         the records these return: a weight by module path, a cache, a state, experts
quantization    module path to storage format, with module_names and packing
assembly        weights and formats to the groups of a ModelShape
mtp, drafters   heads that live on a target's features
"""
