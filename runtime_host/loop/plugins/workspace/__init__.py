"""The workspace plugin: what an agent does in the one folder of its session. `plugin.WorkspacePlugin` is it."""
