package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// volumeCommand is `volume` with its subcommands.
func volumeCommand(c *cli) *cobra.Command {
	return group("volume", "manage the named volumes, which outlive pods",
		&cobra.Command{
			Use:               "list",
			Aliases:           []string{"ls"},
			Short:             "list volumes and the pods that have them",
			Args:              wants(0, 0, "no arguments"),
			ValidArgsFunction: cobra.NoFileCompletions,
			RunE:              func(*cobra.Command, []string) error { return c.listVolumes() },
		},
		&cobra.Command{
			Use:               "inspect VOLUME",
			Short:             "show a volume and the folder of its files, as JSON",
			Args:              wants(1, 1, "a VOLUME"),
			ValidArgsFunction: c.completeVolumes(1),
			RunE:              func(_ *cobra.Command, args []string) error { return c.inspectVolume(args[0]) },
		},
		&cobra.Command{
			Use:   "rm VOLUME…",
			Short: "remove volumes with their files",
			Long: `rm removes volumes with their files. The volume of a pod is an error that names the pod, also of a pod that
has ended: a restart needs the volume. A volume that cannot be removed prevents no other.`,
			Args:              wants(1, -1, "VOLUME…"),
			ValidArgsFunction: c.completeVolumes(math.MaxInt),
			RunE:              func(cmd *cobra.Command, args []string) error { return c.removeVolumes(cmd.Context(), args) },
		},
		volumePruneCommand(c), volumeExportCommand(c), volumeImportCommand(c),
	)
}

// completeVolumes proposes the names of volumes if there are fewer arguments than count.
func (c *cli) completeVolumes(count int) completer {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= count {
			return nil, cobra.ShellCompDirectiveDefault
		}
		if c.begin() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, _ := c.daemon.Volumes()
		var found []cobra.Completion
		for _, v := range all {
			found = append(found, cobra.CompletionWithDesc(v.Name, strings.Join(v.Pods, ", ")))
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

func (c *cli) listVolumes() error {
	all, err := c.daemon.Volumes()
	if err != nil {
		return err
	}
	if c.json {
		return printAll(c, all)
	}
	out := c.table("NAME", "CREATED ("+zone()+")", "PODS")
	for _, v := range all {
		out.row(v.Name, localMinute(v.Created), strings.Join(v.Pods, ", "))
	}
	return out.flush()
}

func (c *cli) inspectVolume(name string) error {
	found, err := c.daemon.FindVolume(name)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(found)
	}
	return c.printIndented(found, "  ")
}

func (c *cli) removeVolumes(ctx context.Context, names []string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, c.daemon.RemoveVolume(ctx, name))
	}
	return errors.Join(errs...)
}

func volumePruneCommand(c *cli) *cobra.Command {
	force, dry := false, false
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "remove the volumes that no pod has, with their files",
		Long: `prune removes the volumes that no pod has, with their files, after a confirmation, and prints their names. The
volumes of an ended pod stay until rm or gc has deleted the pod. A service that is stopped may have no pod: then its
volumes are among those that prune removes. Without a terminal, --force confirms the removal.`,
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.pruneVolumes(cmd.Context(), force, dry) },
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "do not ask")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the volumes that would be removed, and remove none")
	return cmd
}

// volumeName is what `volume prune --json` and `volume import --json` print.
type volumeName struct {
	Name string `json:"name"`
}

func (c *cli) pruneVolumes(ctx context.Context, force, dry bool) error {
	all, err := c.daemon.Volumes()
	if err != nil {
		return err
	}
	var names []string
	for _, v := range all {
		if len(v.Pods) == 0 {
			names = append(names, v.Name)
		}
	}
	if !dry && len(names) > 0 {
		if !force {
			err = c.confirmRemoval(names)
		}
		if err == nil {
			names, err = c.daemon.PruneVolumes(ctx, names)
		} else {
			names = nil
		}
	}
	for _, name := range names {
		if err := c.printOne(volumeName{name}, name); err != nil {
			return err
		}
	}
	return err
}

// confirmRemoval returns an error unless a person at the terminal agrees.
func (c *cli) confirmRemoval(names []string) error {
	if !term.IsTerminal(int(c.stdin.Fd())) {
		return usageError{"volume prune: want --force without a terminal"}
	}
	letSignalsEnd() // nothing is removed before the answer
	fmt.Fprintf(os.Stderr, "No pod has: %s\nRemove these volumes with their files? [y/N] ", strings.Join(names, ", "))
	answer, err := bufio.NewReader(c.stdin).ReadString('\n')
	if err != nil || !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return errors.Join(errors.New("not confirmed; no volume was removed"), err)
	}
	return nil
}

func volumeExportCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "export VOLUME FILE|-",
		Short: "write the files of a volume as a tar archive",
		Long: `export writes the files of a volume as a tar archive, with their owners and modes, into a new file, or for - to
stdout. It leaves out devices, FIFOs, sockets and extended attributes. A pod may change the files meanwhile: stop
its apps first, or use the database's own dump, for an archive of one moment.`,
		Example:           "  launcher volume export data - | ssh other launcher volume import data -",
		Args:              wants(2, 2, "VOLUME FILE|-"),
		ValidArgsFunction: c.completeVolumes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.exportVolume(cmd.Context(), args[0], args[1])
		},
	}
}

func (c *cli) exportVolume(ctx context.Context, name, path string) error {
	if path == "-" {
		if isTerminal(c.stdout) {
			return usageError{"volume export: stdout is a terminal; want a file or a pipe for the archive"}
		}
		letSignalsEnd() // the reader may wait
		return c.warnOfCopy(func(warn func(string)) error { return c.daemon.ExportVolume(ctx, name, c.stdout, warn) })
	}
	defer untilInterrupted(ctx)()
	return c.warnOfCopy(func(warn func(string)) error {
		return newFile(ctx, path, func(file *os.File) error { return c.daemon.ExportVolume(ctx, name, file, warn) })
	})
}

// newFile has a new file written, readable by its owner alone, that appears when it is whole. The end of ctx closes the
// file, so that write fails.
func newFile(ctx context.Context, path string, write func(*os.File) error) error {
	if _, err := os.Lstat(path); err == nil {
		return &os.PathError{Op: "write", Path: path, Err: os.ErrExist}
	}
	file, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	whole := context.AfterFunc(ctx, func() { _ = file.Close() })
	err = write(file)
	if !whole() {
		err = context.Cause(ctx)
	} else {
		err = errors.Join(err, file.Close())
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

func volumeImportCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "import VOLUME FILE|-",
		Short: "make a volume of the files of a tar archive",
		Long: `import makes a new volume of the files of a tar archive, or for - of the archive on stdin, with their owners
and modes, and prints the name. A volume that exists is an error. It leaves out devices, FIFOs and sockets.`,
		Args: wants(2, 2, "VOLUME FILE|-"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.importVolume(cmd.Context(), args[0], args[1])
		},
	}
}

func (c *cli) importVolume(ctx context.Context, name, path string) error {
	from := c.stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		from = file
	}
	defer untilInterrupted(ctx)()
	imported := c.busy("import volume")
	err := c.warnOfCopy(func(warn func(string)) error {
		defer imported()
		return c.daemon.ImportVolume(ctx, name, from, warn)
	})
	if err != nil {
		return err
	}
	return c.printOne(volumeName{name}, name)
}
