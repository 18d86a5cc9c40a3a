"""What serving engines tell about speculation: one file per engine, one record for all of them."""
