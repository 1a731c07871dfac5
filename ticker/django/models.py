"""Holds no models: the tables have their own migrations. Django sends post_migrate only to applications with this
module.
"""
