"""Organisations that meet over a network: certificates, invites, policies, and the processes of NVIDIA FLARE."""
