"""Secure summation: the server learns the sum of the clients' vectors and nothing else about them.

Double masking after Bonawitz et al. 2017, among neighbours after Bell et al. 2020 where clients are many. It holds, in
each round, against an honest-but-curious server together with so many clients as
:func:`cofactor.privacy.secure_sum.neighbours.bound` says; the sum itself is disclosed. The protocol is unaudited.
Everything but ``messages``, ``neighbours`` and ``packing`` needs the package ``cryptography`` (extra ``secure``);
:mod:`cofactor.privacy.secure_sum.protocol` is the way in.
"""
