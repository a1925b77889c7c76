package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

// imageImportCommand is `image import SOURCE…`.
func imageImportCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "import SOURCE…",
		Short: "import images and print their IDs",
		Long: `import imports images and prints their IDs. A SOURCE is one of

  FILE or file://FILE        an ACI, plain or compressed with gzip, bzip2, xz or Zstandard; the file
                             FILE.asc is its signature
  http://… or https://…      an ACI; the signature is at the same address with .asc
  docker://[HOST/]NAME[:TAG] an image of a registry; also …@DIGEST. docker.io/NAME and
                             HOST:PORT/NAME are understood without docker://
  FILE or FOLDER             an archive of docker save, an OCI archive, or an OCI layout

An archive or a layout may have several images, and an image several names: each name becomes an image, and these share
their layers. An image that is not an ACI becomes an image for each of its layers and one on top of them. The launcher
resumes an interrupted download, and does not download a layer that the store has. A signal ends an import at once and
leaves nothing of it; a second signal kills the launcher.`,
		Example: `  launcher image import stager.aci https://example.com/images/web-1.0.aci
  launcher image import docker://docker.io/library/redis:7`,
		Args: wants(1, -1, "SOURCE…"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.importImages(cmd.Context(), args) },
	}
}

// hintAtRegistry suggests docker:// when a source names no file.
func hintAtRegistry(source string, err error) error {
	if strings.Contains(source, "://") || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, missing := os.Lstat(source); !errors.Is(missing, fs.ErrNotExist) {
		return err // of a file in it
	}
	return fmt.Errorf("%w; docker://NAME means an image of a registry", err)
}

// importImages prints the ID of each image that it imports. After a file that is not an
// image it goes on with the next one.
func (c *cli) importImages(ctx context.Context, sources []string) error {
	defer untilInterrupted(ctx)()
	var errs []error
	for _, source := range sources {
		all, err := c.daemon.ImportImages(ctx, source)
		if err != nil {
			errs = append(errs, hintAtRegistry(source, err)) // err names the file
			continue
		}
		if err := c.printImported(source, all); err != nil {
			return err
		}
	}
	if len(errs) > 0 && len(sources) > 1 {
		errs = append(errs, fmt.Errorf("%d of %d files are not imported", len(errs), len(sources)))
	}
	return errors.Join(errs...)
}

// printImported prints the ID of each image of a source.
func (c *cli) printImported(source string, all []daemon.Image) error {
	for _, image := range all {
		if image.Warning != "" {
			c.warn(fmt.Sprintf("%s: %s", source, image.Warning))
		}
		if err := c.printOne(image, image.ID); err != nil {
			return err
		}
	}
	return nil
}
