"""Where models lie: folders, what changed in them, and what a load request puts in their place."""
