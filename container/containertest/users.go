package containertest

import (
	"os"
	"path/filepath"

	"kurma.io/stager/spec"
)

func userCases() []testCase {
	return []testCase{
		{"user and group by number", func(b *bench) { wantUser(b, "33", "44", "33\n44\n44\n") }},
		{"user and group by name", func(b *bench) { wantUser(b, "alice", "staff", "1000\n50\n50\n") }},
		{"a name overrides a number", func(b *bench) { wantUser(b, "12", "12", "1012\n2112\n2112\n") }},
		{"user and group of a file", fileOwner},
		{"users of a file that is mounted", mountedUsers},
		{"supplementary groups", supplementaryGroups},
		{"user 0 whatever the names say", rootWhatever},
		{"HOME is the user's", homes},
	}
}

const printUser = "id -u; id -g; id -G"

func wantUser(b *bench, user, group, want string) {
	s := b.spec()
	s.Process.User, s.Process.Group = user, group
	b.wantBoth(s, printUser, want)
}

func fileOwner(b *bench) {
	b.write("etc/owned", "")
	must(b.t, os.Lchown(filepath.Join(b.root, "etc/owned"), 77, 88))
	must(b.t, os.Symlink("/etc/owned", filepath.Join(b.root, "link")))
	wantUser(b, "/etc/owned", "/link", "77\n88\n88\n")
}

// mountedUsers checks that users are looked up in the assembled root, not in the image.
func mountedUsers(b *bench) {
	b.write("../passwd", "alice:x:5005:2000::/:\n")
	s := b.spec()
	s.Mounts = []spec.Mount{{Source: filepath.Join(b.dir, "passwd"), Target: "/etc/passwd", ReadOnly: true}}
	s.Process.User, s.Process.Group = "alice", "staff"
	b.wantBoth(s, printUser, "5005\n50\n50\n")
}

func supplementaryGroups(b *bench) {
	s := b.spec()
	s.Process.User, s.Process.Group, s.Process.SupplementaryGID = "1000", "2000", []int{20, 21}
	b.wantBoth(s, printUser, "1000\n2000\n2000 20 21\n")
}

func rootWhatever(b *bench) {
	b.write("etc/passwd", "0:x:7:7::/:\nroot:x:7:7::/:\n")
	s := b.sh(printUser)
	s.Process.Root, s.Process.User, s.Process.Group = true, "", ""
	b.wantRun(s, "0\n0\n0\n")
	// root is user 0 where the image has no such name.
	must(b.t, os.Remove(filepath.Join(b.root, "etc/passwd")))
	a := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	cmd := command("sh", "-c", printUser)
	cmd.User, cmd.Group = "root", "root"
	a.wantExec(cmd, "0\n0\n0\n")
}

// homes checks that HOME is looked up by the user's number in the assembled root, for each process of a container.
func homes(b *bench) {
	b.write("etc/passwd", "short:x:1:1\nbin:x:2:2::\nalice:x:1000:2000:Alice:/home/alice:/bin/sh\nagain:x:1000:2000::/elsewhere:\n")
	for _, user := range [][2]string{{"1000", "/home/alice"}, {"again", "/home/alice"}, {"short", "/"}, {"bin", "/"}, {"0", "/"}} {
		s := b.spec()
		s.Process.User = user[0]
		b.wantBoth(s, `echo "$HOME"`, user[1]+"\n")
	}
}
