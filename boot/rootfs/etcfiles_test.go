package rootfs

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestThePodsNameHasItsAddresses(t *testing.T) {
	var all []net.Addr
	for _, text := range []string{"127.0.0.1/8", "::1/128", "10.88.0.7/16", "fe80::1/64", "fd00::7/64"} {
		ip, prefix, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &net.IPNet{IP: ip, Mask: prefix.Mask})
	}
	for _, test := range []struct {
		hostname string
		have     []net.Addr
		want     string
	}{
		{"pod", all, "10.88.0.7\tpod\nfd00::7\tpod\n"},
		{"pod", all[:2], "127.0.0.1\tpod\n"},
		{"pod", nil, "127.0.0.1\tpod\n"},
		{"", all, ""},
	} {
		if got := string(PodHosts(test.hostname, test.have)); got != test.want {
			t.Errorf("%s %v: %q, want %q", test.hostname, test.have, got, test.want)
		}
	}
}

func TestResolverConfigurationIsTheDaemons(t *testing.T) {
	tests := map[string]struct {
		resolver []byte
		want     string
	}{
		"none":   {nil, "the image's\n"},
		"empty":  {[]byte{}, ""},
		"filled": {[]byte("nameserver 192.0.2.1\n"), "nameserver 192.0.2.1\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			file := filepath.Join(root, "etc/resolv.conf")
			if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("the image's\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
			if err := AddEtcFiles(root, test.resolver, "", nil); err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(file); err != nil || string(text) != test.want {
				t.Errorf("resolv.conf %q, %v; want %q", text, err, test.want)
			}
		})
	}
	empty := t.TempDir()
	if err := AddEtcFiles(empty, nil, "", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(empty, "etc/resolv.conf")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("resolv.conf of nothing: %v", err)
	}
}

// An image keeps its own files in /etc; an empty file, as a builder of images leaves where it has mounted its own,
// counts as none. A link is the image's own, wherever it leads.
func TestEmptyFilesInEtcAreFilled(t *testing.T) {
	for had, want := range map[string]string{"": "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n9.9.9.9\tweb\n", "the image's\n": "the image's\n"} {
		root := t.TempDir()
		hosts := filepath.Join(root, "etc/hosts")
		if err := errors.Join(os.Mkdir(filepath.Dir(hosts), 0o755), os.WriteFile(hosts, []byte(had), 0o755), os.Symlink("hosts", filepath.Join(root, "etc/hostname"))); err != nil {
			t.Fatal(err)
		}
		if err := AddEtcFiles(root, nil, "web", []byte("9.9.9.9\tweb\n")); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(hosts); err != nil || string(text) != want {
			t.Errorf("hosts %q, %v; want %q", text, err, want)
		}
		if link, err := os.Readlink(filepath.Join(root, "etc/hostname")); link != "hosts" {
			t.Errorf("hostname is %q, %v, want the image's link", link, err)
		}
	}
}
