"""The operator's file as typed, validated values.

``model`` holds the values and does no I/O; ``load`` turns YAML into them, with every fault at its line;
``units`` reads sizes and durations; ``errors`` is what may go wrong. ``example.yaml`` shows every key.
"""
