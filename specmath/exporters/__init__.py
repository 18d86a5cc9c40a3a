"""One file per output format, each a function `write(result, stream, explain)`.

`specmath.tables` chooses among them. Data formats (`csv_rows`, `json_rows`, `parquet`) write keys and full
precision; the others share the readable columns of `readable`.
"""
