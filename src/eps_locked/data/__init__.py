"""Public data sets as material of a plan: pinned files in, one canonical document out.

A source spec says which files at which commit, what is dropped and what is drawn; ``sample`` turns
it into the document that a manifest freezes, so freezing again needs no hub. Nothing here knows a
study, a judge or an engine. docs/sources.md describes both documents and every reason.
"""
