from tribar.runtime.native._native import kernels as kernels
from tribar.runtime.native._native import packing as packing
from tribar.runtime.native._native import running as running
from tribar.runtime.native._native import sampling as sampling
