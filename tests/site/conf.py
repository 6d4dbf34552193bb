"""Sphinx's configuration of the site."""

project = "memlab"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md"]
root_doc = "index"
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # which has tables
myst_heading_anchors = 3
myst_enable_extensions = ["html_image"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
html_theme = "furo"
html_title = "memlab"
html_static_path = ["static"]
html_css_files = ["panel.css"]
html_js_files = ["panel.js", "site.js"]
html_copy_source = False
html_show_sourcelink = False
