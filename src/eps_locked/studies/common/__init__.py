"""What every study needs and none owns: loading models and judges, material, public sources."""
