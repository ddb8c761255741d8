"""The transforms around Winograd's and Strassen's products."""
