# shellcheck shell=sh disable=SC2034,SC2154 # variables of run.sh, which includes this file
# The emulated machine for amd64: Debian's cloud kernel, and programs of this machine.

emulator='qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 2048'
console=ttyS0
busybox=/bin/busybox
cc=gcc
cross='' # nothing to tell Go and its C compiler
patience=10800
limit=45

# A suite is a package's tests.
suites() {
	cat <<-'END'
		cgroups    launcher/cgroups
		container  container
		unionfs    unionfs
		stager     stager
		supervisor supervisor
		pods       launcher/pods
		launcher   launcher
		e2e        tests
		networks   launcher/tests
		cri        cri/tests
	END
}

# What cannot run in the machine: the suite, the test, and why.
exceptions() {
	cat <<-'END'
		container FuzzPlan it compiles C files, and the machine has no compiler
		container TestDirectStartsEndWhereverTheyAreInterrupted hundreds of starts take an emulated processor too long
		container TestDirectCommandsEndWhereverTheyAreInterrupted hundreds of starts take an emulated processor too long
		e2e TestAcceptanceProgramPasses appc's program waits 100 ms for an answer, too short for an emulated processor
		networks TestRealImagesOfARegistryKeepTheirData it builds images with buildah, which the machine has not
		networks TestTimesAreLocalAndLabelled the machine has no time zones
		networks TestAnExportedImageRunsInAnotherStore it builds images with buildah, which the machine has not
		networks TestAnImageOfARegistryIsPublished it builds images with buildah, which the machine has not
		networks TestAnImagesVolumeBelongsToItsUser it builds images with buildah, which the machine has not
		e2e TestExamplesRunTheSpecificationsPod it builds the modules in examples, and the machine has no Go
	END
}

# kernel unpacks Debian's kernel into $vm/kernel and prints its release.
kernel() { "$top/tools/kernel.sh" "$vm/kernel"; }

# programs NAME... takes programs of this machine, and the loader and libraries
# that they need.
programs() {
	for name in "$@"; do
		path=$(command -v "$name") || die "$name is missing"
		for file in "$path" $(ldd "$path" | grep -o '/[^ ]*'); do
			mkdir -p "$tree$(dirname "$file")"
			cp -L "$file" "$tree$file"
		done
	done
}

# userland fills the tree with the programs that tests call.
userland() {
	programs ip tc nsenter unshare ps pgrep diff script gpg xz bzip2 bash umoci docker-registry skopeo nft iptables ip6tables iptables-save ip6tables-save dnsmasq journalctl apparmor_parser /lib/systemd/systemd-journald
	mkdir -p "$tree/etc/containers" "$tree/usr/lib/x86_64-linux-gnu"
	cp -r /usr/lib/x86_64-linux-gnu/xtables "$tree/usr/lib/x86_64-linux-gnu/" # matches and targets of iptables
	cp -r /usr/lib/cni "$tree/usr/lib/" # CNI's plugins
	cp /etc/containers/policy.json "$tree/etc/containers/" # skopeo's
}

# products puts what has been built for the machine into $tree/built.
products() {
	name=$(cd "$top" && go run ./names/print)
	cp "$top/bin/launcher" "$top/bin/stager" "$top/bin/kurma-cri" "$top/bin/aci" "$out/$name"-*.aci* "$out"/*-netplugin.aci* "$tree/built/"
	cp -r "$out/images/pods" "$out"/images/*.aci "$out"/images/*.id "$out/images/natstalk" "$tree/built/images/"
}
