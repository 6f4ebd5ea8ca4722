# SPDX-License-Identifier: GPL-2.0
"""A whole Debian 13 on a disk: systemd, apt, and the package of the kernel that it boots, with that kernel's own initramfs.

The guest of image.py starts the lab's agent and little else, which is quick. This one is for what has to outlive a boot:
units, packages, and what they leave behind.
"""

from pathlib import Path

from . import cache, debian, kernel, provider, suite, tree
from .ui import Step

# Packages that those of qemu/packaging depend on and their users have; a guest has no network to fetch more from.
PACKAGES = """
    ibverbs-utils initramfs-tools iproute2 kmod libibverbs1 python3 systemd-sysv udev
""".split()

# The words of its kernel besides the lab's own.
BOOT_WORDS = ["root=/dev/vda", "rootfstype=ext4", "rw", "systemd.show_status=0"]

# By this label the guest finds the disk with the checkout's tests and builds.
LABEL = "ferrule"

# The agent comes with those, so a change of it costs no new image. The program that a test runs may
# reboot, and then the agent has to go first: the lab would take the end of the program for the end of the test.
AGENT = f"""\
[Unit]
Description=The guest's end of the line to the lab
Wants=network-online.target
After=multi-user.target network-online.target

[Service]
ExecStartPre=mount -t erofs -o ro LABEL={LABEL} /ferrule
StandardInput=data
StandardInputText=status 0
ExecStart=python3 -I -S /ferrule/lab/agent
ExecStopPost=sh -c '[ $EXIT_CODE != exited ] || systemctl poweroff --force --force'
KillMode=mixed

[Install]
WantedBy=graphical.target
"""

NETWORK = """\
[Match]
Name=eth0

[Network]
Address=10.77.0.1/24
IPv6AcceptRA=no
"""

# Without this, an initramfs has the modules for every machine, and a guest under TCG takes half a minute to unpack them.
SMALL = "MODULES=list\n"
EARLY = ["virtio_pci", "virtio_blk", "ext4"]


def _write(path: str, text: str) -> str:
    """A hook of mmdebstrap's that writes a file."""
    return f"mkdir -p \"$1{path.rpartition('/')[0]}\" && cat > \"$1{path}\" <<'END'\n{text}END\n"


EARLY_HOOKS = [_write("/etc/initramfs-tools/conf.d/lab", SMALL),
               _write("/usr/share/initramfs-tools/modules.d/lab", "".join(f"{name}\n" for name in EARLY))]
HOOKS = [_write("/etc/systemd/system/lab.service", AGENT), _write("/etc/systemd/network/eth0.network", NETWORK),
         'chroot "$1" systemctl enable lab.service systemd-networkd.service && '
         'chroot "$1" systemctl mask apt-daily.timer apt-daily-upgrade.timer && mkdir "$1/ferrule" && '
         'echo system > "$1/etc/hostname" && rm -f "$1/etc/resolv.conf"']


def image(target: kernel.Kernel) -> Path:
    """The directory with disk (ext4), vmlinuz and initrd of the system that boots this kernel of Debian's."""
    def build(directory: Path, step: Step) -> None:
        archive = directory / "root.tar"
        debian.bootstrap(archive, names, step, HOOKS, EARLY_HOOKS)
        boot = [f"./boot/vmlinuz-{target.release}", f"./boot/initrd.img-{target.release}"]
        step.run(["tar", "-x", "-f", archive, "-C", directory, "--no-same-owner", *boot])
        for file, name in zip(boot, ("vmlinuz", "initrd")):
            (directory / file).rename(directory / name)
        (directory / "boot").rmdir()
        words = ["mke2fs", "-q", "-t", "ext4", "-L", "system", "-d", "/entry/root.tar", "/entry/disk", "4G"]
        tree.run(step, words, [(directory, "/entry")], root=tools)
        archive.unlink()

    # The kernel of the backports wants a newer linux-base than Debian 13's, which apt takes only if told so.
    names = [*PACKAGES, *suite.CHOSEN.minimum, suite.CHOSEN.newest("linux-base"), f"linux-image-{target.release}={target.version}"]
    tools = tree.packaging()
    inputs = {"suite": debian.SUITE, "packages": names, "rdma-core": provider.version(), "hooks": [EARLY_HOOKS, HOOKS],
              "tree": tools.parent.name, "layout": 1}
    return cache.entry("system", inputs, f"making a Debian system with Linux {target.release} (about 2 minutes)", build,
                       keep=3)
