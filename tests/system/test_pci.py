# SPDX-License-Identifier: Apache-2.0
"""Tests rove on a PCI address with an emulated NIC in the guest that test_guest.py uses, without an IOMMU.
tests/pci/run has more tests."""
import sys

from harness import ROOT, once

sys.path[:0] = [str(ROOT / "tests" / "guest"), str(ROOT / "tests" / "pci")]

import nics  # noqa: E402
from guest import guest  # noqa: E402

BOOTED = 160        # seconds, because the first test that runs boots the guest


def on_nic(check, *arguments, **options):
    check(guest(), "e1000", *arguments, **options)


once("pci/e1000/prepare-nic", on_nic, nics.prepare, timeout=BOOTED, lane="guest")
once("pci/e1000/devinfo", on_nic, nics.devinfo, timeout=BOOTED, lane="guest")
once("pci/e1000/asked-often", on_nic, nics.asked_often, timeout=BOOTED, lane="guest")
once("pci/e1000/verified", on_nic, nics.verified, "--mtu", "4096", "--sizes", "64,4097", timeout=BOOTED, lane="guest")
