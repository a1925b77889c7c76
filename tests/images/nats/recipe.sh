# The NATS server, built from its Go module, where Docker's image of 2015 had
# it; and, beside the image, a client for it.
for program in nats-server:github.com/nats-io/nats-server/v2 natstalk:./natstalk; do
	CGO_ENABLED=0 go build -C "$recipe" -trimpath -buildvcs=false -ldflags '-s -w' -o "$out/${program%%:*}" "${program#*:}"
done
cp "$out/nats-server" "$root/gnatsd"
cp "$recipe/gnatsd.conf" "$root/gnatsd.conf"
chmod 644 "$root/gnatsd.conf"
