"""Secure summation: the server learns the sum of the clients' vectors and nothing else about them.

Double masking after Bonawitz et al. 2017. It holds against an honest-but-curious server together with fewer than t
clients; the sum itself is disclosed. The protocol is unaudited. Everything but ``messages`` and ``packing`` needs the
package ``cryptography`` (extra ``secure``); :mod:`cofactor.privacy.secure_sum.protocol` is the way in.
"""
