"""Reads the operator's configuration file into typed, validated values.

``model`` defines the values. ``load`` reads them from YAML, and reports every fault with its line. ``schema`` says how
each key is read, and ``checks`` lists what concerns several keys. ``units`` reads sizes and durations, and ``errors``
defines the exceptions. ``example.yaml`` shows every key.
"""
