"""Search of a space: candidates built and gated without a GPU, proved right and timed on one, and kept.

``grid`` numbers the points, ``samplers`` propose, ``candidates`` builds and gates, ``trial`` measures, ``study`` keeps,
``tune`` is the loop, ``finalists`` decides as ``bench --against`` does, ``offer`` writes the winner into the manifest.
"""
