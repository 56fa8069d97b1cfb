# CLIP's list of merges, the vocabulary of text encoders. It is no part of the repository:
# `scripts/setup` runs this file as a script, which fetches it once for all clones of a user, and
# the build embeds it in the program if it is there.
set(clip_merges_folder $ENV{XDG_CACHE_HOME})
if(NOT clip_merges_folder)
  set(clip_merges_folder $ENV{HOME}/.cache)
endif()
set(clip_merges_file ${clip_merges_folder}/ebb/clip_merges.txt.gz)

# Writes generated/ebb/gen/clip_merges.inc: the bytes of the file, a comma after each, or nothing.
function(ebb_embed_clip_merges)
  set(text "")
  if(EXISTS ${clip_merges_file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${clip_merges_file})
    file(READ ${clip_merges_file} text HEX)
    string(REGEX REPLACE "(..)" "0x\\1," text "${text}")
  else()
    message(STATUS "ebb: no ${clip_merges_file}; building without CLIP's vocabulary, "
                   "which scripts/setup fetches")
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/ebb/gen/clip_merges.inc CONTENT "${text}\n"
       @ONLY)
endfunction()

# OpenAI's file, unchanged, from the wheel of open_clip_torch 3.3.0 (MIT).
function(fetch_clip_merges)
  set(folder packages/37/b5/41c315ccd94ca332ead3e832e83eee343ab245005c3e43d9d3e75eae34eb)
  set(url https://files.pythonhosted.org/${folder}/open_clip_torch-3.3.0-py3-none-any.whl)
  set(member open_clip/bpe_simple_vocab_16e6.txt.gz)
  set(member_sha256 924691ac288e54409236115652ad4aa250f48203de50a9e4722a6ecd48d6804a)
  set(work ${clip_merges_file}.work)
  file(REMOVE_RECURSE ${work})
  file(MAKE_DIRECTORY ${work})
  file(DOWNLOAD ${url} ${work}/wheel.zip STATUS status TIMEOUT 120
       INACTIVITY_TIMEOUT 20)
  list(GET status 0 code)
  set(found "")
  if(code EQUAL 0)
    file(ARCHIVE_EXTRACT INPUT ${work}/wheel.zip DESTINATION ${work} PATTERNS ${member})
    file(SHA256 ${work}/${member} found)
  endif()
  if(NOT found STREQUAL member_sha256)
    message(WARNING "CLIP's vocabulary could not be fetched (${status} ${found}) from\n  ${url}\n"
                    "The program will be built without it and then needs the tokenizer files of a "
                    "checkpoint folder.")
  else()
    # 48894 of its 262145 lines are used, after a heading.
    execute_process(COMMAND gzip -dc ${work}/${member} COMMAND head -n 48895 COMMAND gzip -9n
                    OUTPUT_FILE ${work}/merges.gz COMMAND_ERROR_IS_FATAL LAST)
    file(RENAME ${work}/merges.gz ${clip_merges_file})
  endif()
  file(REMOVE_RECURSE ${work})
endfunction()

if(CMAKE_SCRIPT_MODE_FILE AND NOT EXISTS ${clip_merges_file})
  fetch_clip_merges()
endif()
