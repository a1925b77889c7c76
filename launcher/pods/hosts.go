package pods

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The names between the pods of a network are in a hosts file of each pod that is connected to networks: localhost, the
// names that were added to the pod, its hostname and name, and the names of the pods that share a network with it, each
// with its addresses on the shared networks. The pods' records decide what is in all files. So a process that connects
// or disconnects a pod writes the files of all pods that differ from that, and repairs what a killed process has left.
//
// The apps have the file mounted, so it is written in place. A pod whose file has text is in the files of others: the
// text is written once the pod has its addresses, and the file is removed before the pod loses them.

const hostsFile = "hosts"

func (p *Pod) hosts() string { return filepath.Join(p.Dir, hostsFile) }

// makeHosts makes the pod's hosts file, without text.
func (k *Keeper) makeHosts() error {
	file, err := os.OpenFile(k.hosts(), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("make hosts file: %w", err)
	}
	return errors.Join(file.Chmod(0o644), file.Close()) // whatever the umask
}

// writeOwnHosts writes the hosts file of a pod without networks, if it has one. No other pod has its name.
func (k *Keeper) writeOwnHosts() error {
	if len(k.Plan.AddedHosts) == 0 {
		return nil
	}
	if err := k.makeHosts(); err != nil {
		return err
	}
	if err := rewrite(k.hosts(), hostsLines(&k.Pod, nil).text()); err != nil {
		return fmt.Errorf("write hosts file: %w", err)
	}
	return nil
}

// joinHosts writes the pod's hosts file, and the pod into the files of others. The pod starts although another pod's
// file cannot be written: the next change writes it.
func (k *Keeper) joinHosts() error {
	return k.changeHosts(func(others []*Pod) error {
		failed := writeHosts(append(others, &k.Pod))
		own := failed[&k.Pod]
		delete(failed, &k.Pod)
		if len(failed) > 0 {
			k.logLine(slog.LevelWarn, "other pods do not find this one by its name", "error", joined(failed))
		}
		return own
	})
}

// leaveHosts removes the pod from the hosts files of others. It may be repeated.
func (k *Keeper) leaveHosts() error {
	return k.changeHosts(func(others []*Pod) error {
		if err := os.Remove(k.hosts()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return joined(writeHosts(others))
	})
}

// changeHosts calls change with the other pods that are in hosts files, if this pod has networks. The lock of the
// store's folder is held meanwhile.
func (k *Keeper) changeHosts(change func(others []*Pod) error) error {
	if len(k.Plan.Networks) == 0 {
		return nil
	}
	store, err := os.Open(filepath.Dir(k.Dir))
	if err == nil {
		err = flock(store, lockLimit)
	}
	if err != nil {
		return fmt.Errorf("write hosts files: %w", err)
	}
	defer store.Close()
	others, err := k.namedPods()
	if err != nil {
		return fmt.Errorf("write hosts files: %w", err)
	}
	return change(others)
}

// namedPods returns the other live pods that are in hosts files, the oldest first. A damaged pod is none.
func (k *Keeper) namedPods() ([]*Pod, error) {
	store := &Store{dir: filepath.Dir(k.Dir)}
	uuids, err := store.uuids()
	if err != nil {
		return nil, err
	}
	var named []*Pod
	for _, uuid := range uuids {
		info, err := os.Stat(filepath.Join(store.podDir(uuid), hostsFile))
		if err != nil || info.Size() == 0 || uuid == k.Plan.UUID {
			continue
		}
		if p, err := store.read(uuid); err == nil && p.alive() {
			named = append(named, p)
		}
	}
	slices.SortFunc(named, func(a, b *Pod) int { return a.State.Created.Compare(b.State.Created) })
	return named, nil
}

func joined(failed map[*Pod]error) error { return errors.Join(slices.Collect(maps.Values(failed))...) }

// writeHosts writes the hosts files of these pods, which name each other, and returns the errors.
func writeHosts(named []*Pod) map[*Pod]error {
	connections := make(map[*Pod][]Connection)
	for _, p := range named {
		connections[p] = p.Connections()
	}
	failed := make(map[*Pod]error)
	for _, p := range named {
		lines := hostsLines(p, connections[p])
		for _, other := range named {
			if other != p {
				lines.add(sharedAddresses(connections[other], connections[p]), other.Plan.Name)
			}
		}
		if err := rewrite(p.hosts(), lines.text()); err != nil && !errors.Is(err, fs.ErrNotExist) { // deleted by force
			failed[p] = fmt.Errorf("write hosts file of pod %q: %w", p.Plan.Name, err)
		}
	}
	return failed
}

// hosts are the lines of a hosts file. The first owner of a name keeps it, in any case: resolvers return the addresses
// of all lines with a name.
type hosts struct {
	lines []string
	names []string
}

// hostsLines returns the lines of the names that were added to a pod, and of its own.
func hostsLines(p *Pod, connections []Connection) *hosts {
	h := &hosts{
		lines: []string{"127.0.0.1\tlocalhost\n", "::1\tlocalhost ip6-localhost ip6-loopback\n"},
		names: []string{"localhost", "ip6-localhost", "ip6-loopback"},
	}
	for _, added := range p.Plan.AddedHosts {
		var all []netip.Addr // of all additions of the name, which the first one makes
		for _, other := range p.Plan.AddedHosts {
			if strings.EqualFold(other.Name, added.Name) {
				all = append(all, other.Address)
			}
		}
		h.add(all, added.Name)
	}
	own := sharedAddresses(connections, connections)
	if len(own) == 0 {
		own = append(own, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	h.add(own, p.Plan.Hostname, p.Plan.Name)
	return h
}

// add adds a line for each address, with those of the names that are free.
func (h *hosts) add(addresses []netip.Addr, names ...string) {
	var free []string
	for _, name := range names {
		isName := func(other string) bool { return strings.EqualFold(name, other) }
		if name != "" && !slices.ContainsFunc(h.names, isName) && !slices.ContainsFunc(free, isName) {
			free = append(free, name)
		}
	}
	if len(free) == 0 || len(addresses) == 0 {
		return
	}
	h.names = append(h.names, free...)
	for _, address := range addresses {
		h.lines = append(h.lines, address.String()+"\t"+strings.Join(free, " ")+"\n")
	}
}

// sharedAddresses returns the addresses of a pod's connections to networks of others that other machines of the network
// can have, unlike 127.0.0.1.
func sharedAddresses(own, others []Connection) (all []netip.Addr) {
	for _, c := range own {
		if !slices.ContainsFunc(others, func(o Connection) bool { return o.Name == c.Name }) {
			continue
		}
		for _, address := range c.Addresses() {
			if address.IsGlobalUnicast() {
				all = append(all, address)
			}
		}
	}
	return all
}

// pageSize is the smallest of the kernel's: write(2) copies a page as a whole, also when the process is killed.
const pageSize = 4096

// text returns the file. No line crosses the end of a page: a write that is cut off leaves only whole lines.
func (h *hosts) text() []byte {
	var text []byte
	for _, line := range h.lines {
		if room := pageSize - len(text)%pageSize; room < len(line) {
			text = append(text, bytes.Repeat([]byte("\n"), room)...)
		}
		text = append(text, line...)
	}
	return text
}

// maxHosts is more than a hosts file of this machine's pods has, in bytes.
const maxHosts = 4 << 20

// rewrite replaces the text of a file in place. The same write makes blank what was beyond the new text, and then the
// file is cut off.
func rewrite(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	old, err := io.ReadAll(io.LimitReader(file, maxHosts+1))
	if err == nil && len(old) > maxHosts { // an app that may mount has made it
		old, err = nil, file.Truncate(0)
	}
	if err == nil && !bytes.Equal(old, text) {
		_, err = file.WriteAt(append(slices.Clone(text), bytes.Repeat([]byte("\n"), max(0, len(old)-len(text)))...), 0)
		if err == nil {
			err = file.Truncate(int64(len(text)))
		}
	}
	return errors.Join(err, file.Close())
}
