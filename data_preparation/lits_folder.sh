# Shared by the scripts beside it: where the LiTS files lie, and the refusal to leave the project.
# Sets `data`, the project's data folder with no symbolic link in its path.

unset CDPATH # makes cd print what it finds
shopt -s nullglob

fail() {
    echo "Error: $*" >&2
    exit 2
}

project="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
[[ -f "$project/configs/config.yaml" && -f "$project/data_preparation/unzip_scans.py" ]] ||
    fail "$project is not the project's folder; run the script where it belongs"
[[ -d "$project/data" ]] || fail "$project/data not found; make it and put the LiTS zip files there"
data="$(cd -- "$project/data" && pwd -P)"
[[ "$data" == "$project/data" ]] ||
    fail "$project/data leads outside the project, to $data; this script works inside only"

# The zip files of a batch, each ended by a NUL: Training_Batch1.zip, Training Batch 1.zip …
zips_of_batch() {
    local zip
    for zip in "$data"/*.zip; do
        if [[ "${zip##*/}" =~ raining[^0-9]*([0-9]+) && "${BASH_REMATCH[1]}" == "$1" ]]; then
            printf '%s\0' "$zip"
        fi
    done
}
