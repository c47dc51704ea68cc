"""What crosses a boundary: events, views and limits. Models only; nothing here reads or writes anything."""
