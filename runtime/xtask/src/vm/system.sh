#!/bin/sh
# Makes the disk of the guest with systemd, as root: a minimal Debian of this machine's release, whose programs it then runs.
#
#   sh system.sh RELEASE PACKAGES DISK
set -eu
release=$1 packages=$2 disk=$3
root=$(mktemp -d)
trap 'rm -rf -- "$root"' EXIT
mmdebstrap --variant=minbase --include="$packages" --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    "$release" "$root/tree"
cd "$root/tree"
rm -rf var/cache/apt/* var/lib/apt/lists/*
echo qosm-node >etc/hostname
printf '127.0.0.1 localhost qosm-node\n' >etc/hosts
# Hostfs shows this machine's folders as they are; the kernel's command line says which script.
mkdir -p host
cat >etc/systemd/system/qosm-script.service <<'UNIT'
[Unit]
Description=the script
After=basic.target dbus.service systemd-udev-settle.service
[Service]
Type=oneshot
TimeoutStartSec=infinity
StandardInput=null
StandardOutput=tty
StandardError=inherit
TTYPath=/dev/console
ExecStart=/bin/sh /usr/local/bin/script
[Install]
WantedBy=multi-user.target
UNIT
cat >usr/local/bin/script <<'SCRIPT'
mount -t hostfs -o ro none /host
file=$(sed -n 's/.*qosm\.script=\([^ ]*\).*/\1/p' /proc/cmdline)
echo 'qosm-vm: the script begins'
sh "/host$file"
echo "qosm-vm: the script ended with $?"
sync
systemctl poweroff --force --force
SCRIPT
wants=etc/systemd/system/multi-user.target.wants
mkdir -p $wants
ln -s ../qosm-script.service $wants/
# What nobody waits for.
for unit in getty.target apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer; do
    ln -sf /dev/null etc/systemd/system/$unit
done
cd /
rm -f "$disk.new"
truncate -s 8G "$disk.new"
mkfs.ext4 -q -F -d "$root/tree" "$disk.new"
chmod 644 "$disk.new"
mv "$disk.new" "$disk"
