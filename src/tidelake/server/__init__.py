"""Take rows from other programs over the network, in the protocols that they speak already.

One process, ``tidelake serve``: a protocol is a small decoder (``protocols/``) that turns bytes into rows of tables and
outcomes into the answer that its clients expect; all of them share one way in (``staging``), which commits what arrives
together and answers when that is durable. The only room that imports server libraries; it may import all but ``cli``.
Its door is ``process``.
"""
