"""The context of the next reply, and the view of a chat's memory: read in one step, assembled without a store."""
