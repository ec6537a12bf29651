"""The kernels themselves. Offsets that grow with the number of rows are int64; numbers are computed in float32."""
