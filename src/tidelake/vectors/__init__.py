"""Find the rows whose vectors are nearest to a query, without looking at all of them.

A table has one codebook for each indexed column, learned from a sample of its vectors; each extent has a sidecar that
says where its vectors lie in that codebook. Both only ever save work: whatever is missing, damaged or not there yet is
searched exactly, and answers are measured by the vectors themselves. ``nearest`` is the door of those who ask,
``indexing`` of those who make and drop indexes, ``sidecars`` of those who write extents. The room may import ``handle``
and what is below it; of all modules ``quantizing`` alone touches faiss, when it is first needed.
"""
