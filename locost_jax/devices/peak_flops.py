"""The peak FLOP/s of devices, used to compute a run's utilisation.

From the makers' data sheets: TFLOP/s of one device, as JAX counts devices, for
dense matrix products in bfloat16 (float16 on devices without bfloat16) with
sums in float32. Utilisation is relative to this number for every dtype: a
float32 run on an A100 reaches at most 1/16, or 1/2 with TF32.
"""

import re

# Regex of jax.Device.device_kind -> TFLOP/s; the first match decides. A chip of
# TPU v2, v3 or 7x is two devices, one per core, with half its FLOP/s each.
TFLOPS = (
    (r'GB[23]00', 2500.0),
    (r'B[23]00', 2250.0),
    (r'H200|H100.*(HBM3|SXM)', 989.0),
    (r'H100.*NVL', 835.0),
    (r'H100.*PCIe', 756.0),
    (r'A100\b|A800\b', 312.0),
    (r'L40S', 362.0),
    (r'L4$', 121.0),
    (r'A10G', 70.0),
    (r'A10$', 125.0),
    (r'RTX 4090', 165.0),
    (r'RTX 3090', 71.0),
    (r'V100\b', 125.0),
    (r'T4$', 65.0),
    (r'TPU7x', 1153.5),
    (r'TPU v6 lite|TPU v6e', 918.0),
    (r'TPU v5 lite|TPU v5e', 197.0),
    (r'TPU v5', 459.0),
    (r'TPU v4 lite', 138.0),
    (r'TPU v4', 275.0),
    (r'TPU v3', 61.5),
    (r'TPU v2', 22.5),
)


def lookup(kind):
  """Returns the FLOP/s of one device; None if not in the table (any CPU).

  Args:
    kind: jax.Device.device_kind, 'NVIDIA H100 80GB HBM3' or 'TPU v4'.
  """
  for pattern, tflops in TFLOPS:
    if re.search(pattern, kind):
      return tflops * 1e12
  return None
