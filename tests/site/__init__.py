"""The site: the notebooks, the guides and the API as pages, every lab as a panel that needs no Python.

``python -m tests.site`` builds it in ``build/site``, and checks it.
"""
