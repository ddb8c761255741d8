"""Windows of each channel: depthwise convolutions and pools."""
