"""The schedulers that can be read, one file each: `SOURCES` in `ticker.importing.plan` names them."""
